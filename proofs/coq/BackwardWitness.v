(* The execution that attains the backward constant 12.

   Keys outer, queries inner: k_j, v_j, dk_j, dv_j of a block of bc keys stay in fast
   memory; for each query dq_i is made anew, gathers the block and is added to slow
   memory.  It is valid and complete, processes no pair twice, and moves exactly

     2 nk (d + dv) + ceil(nk / bc) nq (2d + dv)

   words.  Hypotheses: 0 < bc and bc 2 (d + dv) + 2d + dv <= M.  So for dv = d and
   M = 4 d bc + 3 d the leading term is 12 nq nk d^2 / M, that of backward_bound.
   Scores and statistics are free here.  Source: derived here, after Dao 2023
   (arXiv 2307.08691), Algorithm 2, which adds to dQ atomically. *)
From Coq Require Import Arith Lia List Permutation.
From iosim Require Import Tiles Lists Machine MeetingOnce AttentionModel BackwardModel Phases.
Import ListNotations.

Section Witness.
Variables d dv nq nk bc : nat.
Notation X := (backward d dv).

Definition own (ks : list nat) : list (word X) :=
  flat_map (k_acc d dv) ks ++ flat_map (k_in d dv) ks.
Definition row (i : nat) : list (word X) := q_acc d i ++ q_in d dv i.

Definition query_events (ks : list nat) (i : nat) : list (event X) :=
  map (@Load X) (q_in d dv i)
  ++ map (@New X) (q_acc d i)
  ++ flat_map (fun j => [@Do X (i, j)]) ks
  ++ map (@Add X) (q_acc d i)
  ++ map (@Drop X) (row i).

Definition block_events (ks : list nat) : list (event X) :=
  map (@Load X) (flat_map (k_in d dv) ks)
  ++ map (@New X) (flat_map (k_acc d dv) ks)
  ++ flat_map (query_events ks) (seq 0 nq)
  ++ map (@Store X) (flat_map (k_acc d dv) ks)
  ++ map (@Drop X) (own ks).

Definition witness : list (event X) := flat_map block_events (tiles nk bc).

(* Words *)

Lemma in_own w ks : In w (own ks) -> b_query_side w = false /\ In (b_row w) ks.
Proof.
  unfold own. rewrite in_app_iff, !in_flat_map. intros [(j & Hj & H) | (j & Hj & H)].
  - apply in_k_acc in H as (_ & ? & <-). auto.
  - apply in_k_in in H as (_ & ? & <-). auto.
Qed.

Lemma in_row w i : In w (row i) -> b_query_side w = true.
Proof.
  unfold row. rewrite in_app_iff. intros [H | H]; [ apply in_q_acc in H | apply in_q_in in H ]; tauto.
Qed.

Lemma own_NoDup ks : NoDup ks -> NoDup (own ks).
Proof.
  intros N. apply NoDup_app.
  - apply (NoDup_flat_map b_row); [ exact N | intros; apply k_acc_NoDup | ].
    intros j w _ H. now apply in_k_acc in H.
  - apply (NoDup_flat_map b_row); [ exact N | intros; apply k_in_NoDup | ].
    intros j w _ H. now apply in_k_in in H.
  - intros w H H'. apply in_flat_map in H as (j & _ & H), H' as (j' & _ & H').
    apply in_k_acc in H. apply in_k_in in H'. intuition congruence.
Qed.

Lemma row_NoDup i : NoDup (row i).
Proof.
  apply NoDup_app; [ apply q_acc_NoDup | apply q_in_NoDup | ].
  intros w H H'. apply in_q_acc in H. apply in_q_in in H'. intuition congruence.
Qed.

Lemma row_own_NoDup i ks : NoDup ks -> NoDup (row i ++ own ks).
Proof.
  intros N. apply NoDup_app; [ apply row_NoDup | now apply own_NoDup | ].
  intros w H H'. apply in_row in H. apply in_own in H' as [H' _]. congruence.
Qed.

Lemma k_acc_length ks : length (flat_map (k_acc d dv) ks) = length ks * (d + dv).
Proof. apply flat_map_length. intros. unfold k_acc. now rewrite app_length, !words_length. Qed.
Lemma k_in_length ks : length (flat_map (k_in d dv) ks) = length ks * (d + dv).
Proof. apply flat_map_length. intros. unfold k_in. now rewrite app_length, !words_length. Qed.
Lemma own_length ks : length (own ks) = length ks * (2 * (d + dv)).
Proof. unfold own. rewrite app_length, k_acc_length, k_in_length. lia. Qed.
Lemma row_length i : length (row i) = 2 * d + dv.
Proof. unfold row, q_acc, q_in. rewrite !app_length, !words_length. lia. Qed.

(* Its traffic *)

Lemma query_traffic ks i : traffic (query_events ks i) = 2 * d + dv.
Proof.
  unfold traffic, query_events. rewrite !total_app.
  assert (E : forall l, total (fun e => cost_load e + cost_store e)
                          (flat_map (fun j => [@Do X (i, j)]) l) = 0)
    by (induction l; cbn; auto).
  rewrite E, (total_map _ (@Load X) 1), (total_map _ (@New X) 0), (total_map _ (@Add X) 1),
    (total_map _ (@Drop X) 0) by reflexivity.
  unfold q_in, q_acc. rewrite app_length, !words_length. lia.
Qed.

Lemma block_traffic ks :
  traffic (block_events ks) = length ks * (2 * (d + dv)) + nq * (2 * d + dv).
Proof.
  assert (E : forall l, traffic (flat_map (query_events ks) l) = length l * (2 * d + dv)).
  { induction l as [| i l IH]; [ reflexivity | ]. cbn [flat_map length].
    pose proof (query_traffic ks i) as Q. unfold traffic in *. rewrite total_app, IH, Q. lia. }
  specialize (E (seq 0 nq)). rewrite seq_length in E.
  unfold traffic, block_events in *. rewrite !total_app, E.
  rewrite (total_map _ (@Load X) 1), (total_map _ (@New X) 0), (total_map _ (@Store X) 1),
    (total_map _ (@Drop X) 0) by reflexivity.
  rewrite k_in_length, k_acc_length. lia.
Qed.

Theorem witness_traffic : 0 < bc ->
  traffic witness = 2 * nk * (d + dv) + cdiv nk bc * (nq * (2 * d + dv)).
Proof.
  intros Hb. assert (E : forall Bs, traffic (flat_map block_events Bs)
    = length (concat Bs) * (2 * (d + dv)) + length Bs * (nq * (2 * d + dv))).
  { induction Bs as [| ks Bs IH]; [ reflexivity | ].
    cbn [flat_map concat length]. pose proof (block_traffic ks) as B.
    unfold traffic in *. rewrite total_app, IH, B, app_length. lia. }
  unfold witness. rewrite E, concat_tiles by exact Hb.
  unfold tiles. rewrite map_length, !seq_length. lia.
Qed.

(* It processes no pair twice *)

Lemma tasks_app (a b : list (event X)) : tasks (a ++ b) = tasks a ++ tasks b.
Proof. induction a as [| [] a IH]; cbn; auto. now rewrite IH. Qed.

Lemma tasks_map (f : word X -> event X) l : (forall w, tasks [f w] = []) -> tasks (map f l) = [].
Proof.
  intros H. induction l as [| w l IH]; [ reflexivity | ].
  change (map f (w :: l)) with ([f w] ++ map f l). now rewrite tasks_app, H, IH.
Qed.

Lemma tasks_flat_map {A} (f : A -> list (event X)) l :
  tasks (flat_map f l) = flat_map (fun a => tasks (f a)) l.
Proof. induction l; cbn; [ reflexivity | now rewrite tasks_app, IHl ]. Qed.

Lemma block_tasks ks :
  tasks (block_events ks) = flat_map (fun i => map (pair i) ks) (seq 0 nq).
Proof.
  unfold block_events. rewrite !tasks_app, !tasks_map by reflexivity. cbn.
  rewrite app_nil_r, tasks_flat_map. apply flat_map_ext. intros i.
  unfold query_events. rewrite !tasks_app, !tasks_map by reflexivity. cbn.
  rewrite app_nil_r, tasks_flat_map. cbn. induction ks; cbn; [ reflexivity | now rewrite IHks ].
Qed.

Lemma in_block_tasks i j ks : In (i, j) (tasks (block_events ks)) -> In j ks.
Proof.
  rewrite block_tasks, in_flat_map. intros (i' & _ & H).
  apply in_map_iff in H as (j' & E & H). now injection E as -> ->.
Qed.

Theorem witness_once : 0 < bc -> NoDup (tasks witness).
Proof.
  intros Hb. unfold witness. rewrite tasks_flat_map.
  pose proof (seq_NoDup nk 0) as N. rewrite <- (concat_tiles nk bc Hb) in N.
  induction (tiles nk bc) as [| ks Bs IH]; cbn [flat_map concat] in *; [ constructor | ].
  destruct (NoDup_app_inv _ _ N) as [N1 N2]. apply NoDup_app; [ | now apply IH | ].
  - rewrite block_tasks. apply (NoDup_flat_map fst); [ apply seq_NoDup | | ].
    + intros i _. apply NoDup_map; [ congruence | exact N1 ].
    + intros i p _ H. now apply in_map_iff in H as (j & <- & _).
  - intros [i j] H H'. apply in_block_tasks in H.
    apply in_flat_map in H' as (ks' & Hk & H'). apply in_block_tasks in H'.
    apply (NoDup_app_disjoint _ _ j N H). apply in_concat. eauto.
Qed.

(* From here on the words fit. *)
Variable M : nat.
Hypothesis bc_positive : 0 < bc.
Hypothesis room : bc * (2 * (d + dv)) + (2 * d + dv) <= M.

Definition key_accs (w : word X) : Prop := b_query_side w = false.
Definition everything (w : word X) : Prop := True.

Lemma phase_weaken s es F : phase everything M s es F -> phase key_accs M s es F.
Proof. intros (V & P & K1 & K2). split; [ exact V | split; [ exact P | split; auto ] ].
  intros w t _. now apply K1. Qed.

Section Block.
Variable ks : list nat.
Hypothesis ks_NoDup : NoDup ks.
Hypothesis ks_length : length ks <= bc.

Lemma block_room : length (own ks) + (2 * d + dv) <= M.
Proof.
  rewrite own_length.
  assert (length ks * (2 * (d + dv)) <= bc * (2 * (d + dv))) by (apply Nat.mul_le_mono_r; exact ks_length).
  lia.
Qed.

(* What a query leaves behind. *)
Definition gathered (i : nat) (s : state X) : Prop := forall j, In j ks ->
  (forall w, In w (k_acc d dv j) -> In (i, j) (content s w)) /\
  (forall w, In w (q_acc d i) -> In (i, j) (saved s w)).

Lemma gathered_keeps i s s' : keeps key_accs s s' -> gathered i s -> gathered i s'.
Proof.
  intros [K1 K2] H j Hj. destruct (H j Hj) as [Ha Hb]. split; intros w Hw.
  - apply K1; [ now apply in_k_acc in Hw | auto ].
  - apply K2. auto.
Qed.

Lemma query_phase i s : Permutation (fast s) (own ks) ->
  phase key_accs M s (query_events ks i) (own ks) /\ gathered i (run s (query_events ks i)).
Proof.
  intros P. pose proof block_room as HL.
  pose proof (row_own_NoDup i ks ks_NoDup) as N.
  assert (HR : length (row i ++ own ks) <= M) by (rewrite app_length, row_length; lia).
  unfold row in N, HR. rewrite <- app_assoc in N, HR.
  set (R := q_acc d i ++ q_in d dv i ++ own ks) in *.
  assert (P1 : phase key_accs M s (map (@Load X) (q_in d dv i)) (q_in d dv i ++ own ks)).
  { apply (phase_load (X := X)); [ exact P | now apply NoDup_app_inv in N | ].
    unfold R in HR. rewrite app_length in HR. change (word X) with bword in *. lia. }
  set (s1 := run s (map (@Load X) (q_in d dv i))) in *.
  assert (P2 : phase key_accs M s1 (map (@New X) (q_acc d i)) R).
  { apply (phase_new (X := X)); trivial; [ apply P1 | ]. intros w Hw.
    apply in_q_acc in Hw as (Hi & Hs & _). split; [ exact Hi | unfold key_accs; congruence ]. }
  set (s2 := run s1 (map (@New X) (q_acc d i))) in *.
  set (took := fun j (a : state X) => forall w, In w (q_acc d i ++ k_acc d dv j) -> In (i, j) (content a w)).
  destruct (phase_loop (X := X) everything M (fun j => [@Do X (i, j)]) took (fun _ => True) R ks)
    with (s := s2) as (P3 & T3); trivial.
  { intros j a b [K _] H w Hw. apply K; [ exact I | now apply H ]. }
  { intros j a Hj Ha _.
    destruct (phase_do (X := X) everything M (i, j) a R) as (D1 & D2); trivial; [ | exact I | ].
    - intros w Hw. change (In w ((q_in d dv i ++ q_acc d i) ++ k_in d dv j ++ k_acc d dv j)) in Hw.
      unfold R, own. rewrite !in_app_iff, !in_flat_map in *.
      destruct Hw as [[Hw | Hw] | [Hw | Hw]]; eauto 8.
    - split; [ exact D1 | exact D2 ]. }
  { apply P2. }
  set (s3 := run s2 (flat_map (fun j => [@Do X (i, j)]) ks)) in *.
  destruct (phase_add (X := X) everything M (q_acc d i) s3 R) as (P4 & A4); trivial.
  { apply P3. }
  { intros w Hw. apply in_or_app. now left. }
  set (s4 := run s3 (map (@Add X) (q_acc d i))) in *.
  assert (P5 : phase key_accs M s4 (map (@Drop X) (row i)) (own ks)).
  { unfold row. apply (phase_drop (X := X)); rewrite <- ?app_assoc; trivial; [ apply P4 | ].
    intros w Hw. apply in_row in Hw. unfold key_accs. congruence. }
  unfold query_events. split.
  - apply (phase_app (X := X)) with (q_in d dv i ++ own ks); [ exact P1 | ].
    apply (phase_app (X := X)) with R; [ exact P2 | ].
    apply (phase_app (X := X)) with R; [ now apply phase_weaken | ].
    apply (phase_app (X := X)) with R; [ now apply phase_weaken | exact P5 ].
  - rewrite !run_app. fold s1 s2 s3 s4. apply gathered_keeps with s4; [ apply P5 | ].
    intros j Hj. split; intros w Hw.
    + apply P4; [ exact I | ]. apply (T3 j Hj). apply in_or_app. now right.
    + apply A4; [ exact Hw | ]. apply (T3 j Hj). apply in_or_app. now left.
Qed.

Definition pairs_done (s : state X) : Prop := forall i j w, i < nq -> In j ks ->
  In w (q_acc d i ++ k_acc d dv j) -> In (i, j) (saved s w).

Lemma block_valid s : fast s = [] ->
  let s' := run s (block_events ks) in
  valid M s (block_events ks) /\ fast s' = [] /\ pairs_done s' /\
  (forall w t, b_query_side w = true \/ ~ In (b_row w) ks ->
     In t (saved s w) -> In t (saved s' w)).
Proof.
  intros P. pose proof block_room as HL. pose proof (own_NoDup ks ks_NoDup) as N.
  set (none := fun _ : word X => False).
  assert (P1 : phase none M s (map (@Load X) (flat_map (k_in d dv) ks)) (flat_map (k_in d dv) ks)).
  { rewrite <- (app_nil_r (flat_map (k_in d dv) ks)) at 2.
    apply (phase_load (X := X)); rewrite ?app_nil_r.
    - rewrite P. constructor.
    - unfold own in N. now apply NoDup_app_inv in N.
    - rewrite own_length in HL. rewrite k_in_length. lia. }
  set (s1 := run s (map (@Load X) (flat_map (k_in d dv) ks))) in *.
  assert (P2 : phase none M s1 (map (@New X) (flat_map (k_acc d dv) ks)) (own ks)).
  { apply (phase_new (X := X)); trivial; [ apply P1 | | ].
    { change (length (own ks) <= M). lia. }
    intros w Hw. split; [ | exact (fun H => H) ].
    apply in_flat_map in Hw as (j & _ & Hw). now apply in_k_acc in Hw. }
  set (s2 := run s1 (map (@New X) (flat_map (k_acc d dv) ks))) in *.
  destruct (phase_loop (X := X) key_accs M (query_events ks) gathered (fun _ => True) (own ks)
    (seq 0 nq)) with (s := s2) as (P3 & G3); trivial.
  { intros i a b. apply gathered_keeps. }
  { intros i a _ Ha _. now apply query_phase. }
  { apply P2. }
  set (s3 := run s2 (flat_map (query_events ks) (seq 0 nq))) in *.
  assert (E3 : Permutation (fast s3) (own ks)) by apply P3.
  destruct (store_all (X := X) M (flat_map (k_acc d dv) ks) s3) as (V4 & F4 & C4 & S4 & S4').
  { intros w Hw. apply (Permutation_in _ (Permutation_sym E3)). apply in_or_app. now left. }
  { rewrite (Permutation_length E3). lia. }
  set (s4 := run s3 (map (@Store X) (flat_map (k_acc d dv) ks))) in *.
  assert (P5 : phase none M s4 (map (@Drop X) (own ks)) []).
  { apply (phase_drop (X := X)); rewrite ?app_nil_r; trivial.
    - now rewrite F4.
    - lia.
    - intros w _ H. exact H. }
  cbn zeta. unfold block_events. rewrite !run_app, !valid_app. fold s1 s2 s3 s4.
  destruct P1 as (V1 & _ & _ & K1), P2 as (V2 & _ & _ & K2), P3 as (V3 & _ & _ & K3),
    P5 as (V5 & E5 & _ & K5).
  assert (Sq : forall w, b_query_side w = true \/ ~ In (b_row w) ks ->
                 ~ In w (flat_map (k_acc d dv) ks)).
  { intros w Hw H. apply in_flat_map in H as (j & Hj & H).
    apply in_k_acc in H as (_ & H & <-). destruct Hw; [ congruence | contradiction ]. }
  split; [ tauto | split; [ | split ] ].
  - now apply Permutation_nil, Permutation_sym.
  - intros i j w Hi Hj Hw. apply K5. destruct (G3 i) with (j := j) as [Ga Gb]; trivial.
    { apply in_seq. lia. }
    apply in_app_iff in Hw as [Hw | Hw].
    + rewrite S4'; [ now apply Gb | ]. apply Sq. left. now apply in_q_acc in Hw.
    + rewrite S4; [ now apply Ga | ]. apply in_flat_map. eauto.
  - intros w t Hw Ht. apply K5. rewrite S4' by now apply Sq. now apply K3, K2, K1.
Qed.
End Block.

Lemma blocks_valid Bs : forall s, NoDup (concat Bs) ->
  (forall ks, In ks Bs -> length ks <= bc) -> fast s = [] ->
  let s' := run s (flat_map block_events Bs) in
  valid M s (flat_map block_events Bs) /\ fast s' = [] /\ pairs_done (concat Bs) s' /\
  (forall w t, b_query_side w = true \/ ~ In (b_row w) (concat Bs) ->
     In t (saved s w) -> In t (saved s' w)).
Proof.
  induction Bs as [| ks Bs IH]; intros s N L P; cbn in *.
  { split; [ exact I | split; [ exact P | split; [ intros ? ? ? ? [] | auto ] ] ]. }
  rewrite run_app, valid_app. destruct (NoDup_app_inv _ _ N) as [N1 N2].
  destruct (block_valid ks N1 (L ks (or_introl eq_refl)) s P) as (V1 & F1 & D1 & S1).
  destruct (IH (run s (block_events ks)) N2) as (V2 & F2 & D2 & S2); auto.
  split; [ tauto | split; [ exact F2 | split ] ].
  - intros i j w Hi Hj Hw. apply in_app_iff in Hj as [Hj | Hj]; [ | now apply D2 ].
    apply S2; [ | now apply D1 ]. apply in_app_iff in Hw as [Hw | Hw].
    + left. now apply in_q_acc in Hw.
    + right. apply in_k_acc in Hw as (_ & _ & ->). now apply (NoDup_app_disjoint ks).
  - intros w t Hw Ht. rewrite in_app_iff in Hw. apply S2; [ tauto | apply S1; tauto ].
Qed.

Theorem witness_correct :
  valid M (init X) witness /\ b_complete d dv (all_pairs nq nk) (run (init X) witness).
Proof.
  destruct (blocks_valid (tiles nk bc) (init X)) as (V & _ & D & _); trivial.
  - rewrite concat_tiles by exact bc_positive. apply seq_NoDup.
  - intros ks H. unfold tiles in H. apply in_map_iff in H as (b & <- & _).
    unfold tile. rewrite seq_length. apply rows_le.
  - split; [ exact V | ]. intros [i j] w Ht Hw. apply in_prod_iff in Ht as [Hi Hj].
    apply in_seq in Hi. rewrite concat_tiles in D by exact bc_positive. apply D; trivial. lia.
Qed.
End Witness.

Theorem backward_attained d dv nq nk bc M :
  0 < bc -> bc * (2 * (d + dv)) + (2 * d + dv) <= M ->
  exists es : list (event (backward d dv)),
    valid M (init _) es /\
    b_complete d dv (all_pairs nq nk) (run (init _) es) /\
    NoDup (tasks es) /\
    traffic es = 2 * nk * (d + dv) + cdiv nk bc * (nq * (2 * d + dv)).
Proof.
  intros Hb HM. exists (witness d dv nq nk bc).
  destruct (witness_correct d dv nq nk bc M Hb HM) as [V C].
  split; [ exact V | split; [ exact C | split ] ].
  - now apply witness_once.
  - now apply witness_traffic.
Qed.
