(* Any order of events, in a large memory: the constant is 3 (new ground beyond (e)).

   Nothing is assumed about residency: words of q, k, v, of partial scores and of
   outputs come and go one at a time, scores may be spilled, merged and formed again.
   The score s_ij is summed from its d products q_ic k_jc (Mac i j c) in a word p_ij;
   the finished score multiplies v_jc into o_ic (Acc i j c).  Then for dv = d, no mask,

     (3 d^2 + d) nq nk <= (M + 3 d^2 - d - 1) traffic + (3 d^2 - d) M

   so, but for the last term, the constant is (3 + 1/d) / (1 + 3 d^2 / M), and tends to
   3 as M / d^2 grows; theorem (e) has 1, and flash2 moves 4.

   Hypotheses: 0 < d, 0 < dv, 0 < M; the execution is valid, and every product of a
   visible pair is in the saved outputs.

   Proof: Windows.v, with the partial scores as hubs.  When p_ij is formed in a window
   and used in it, all of q_i and k_j, v_jc and o_ic are among the words seen there:
   q_i meets k_j and, over all c, v_j; o_i meets k_j; and o_ic meets v_jc.  Any other
   pair has q_ic meet k_jc and o_ic meet v_jc. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting Windows AttentionModel.
Import ListNotations.

Inductive pword :=
| Pq (i c : nat) | Pk (j c : nat) | Pv (j c : nat)
| Po (i c : nat)                         (* outputs, accumulated *)
| Pp (i j : nat)                         (* scores, partial or finished *)
| Px (made : bool) (n : nat).            (* anything else *)

Inductive ptask := Mac (i j c : nat) | Acc (i j c : nat).

Definition pword_dec (x y : pword) : {x = y} + {x <> y}.
Proof. decide equality; first [ apply Nat.eq_dec | apply Bool.bool_dec ]. Defined.

Definition p_input (w : pword) : bool :=
  match w with Pq _ _ | Pk _ _ | Pv _ _ => true | Po _ _ | Pp _ _ => false | Px made _ => negb made end.

Definition products (d : nat) : model := {|
  word := pword;
  task := ptask;
  word_dec := pword_dec;
  input := p_input;
  needs t := match t with
    | Mac i j c => [Pq i c; Pk j c; Pp i j]
    | Acc i j c => [Pp i j; Pv j c; Po i c]
    end;
  outs t := match t with Mac i j _ => [Pp i j] | Acc i _ c => [Po i c] end;
  ready t c := match t with
    | Mac _ _ _ => True
    | Acc i j _ => forall x, x < d -> In (Mac i j x) (c (Pp i j))
    end
|}.

Definition p_complete d dv vis (s : state (products d)) : Prop :=
  forall i j c, In (i, j) vis -> c < dv -> In (Acc i j c) (saved s (Po i c)).

Definition is_partial (w : pword) : bool := match w with Pp _ _ => true | _ => false end.
Definition partial_of (t : ptask) : pword := match t with Mac i j _ | Acc i j _ => Pp i j end.
Definition partial_tasks d (t : ptask) : list ptask :=
  match t with Acc i j _ => map (Mac i j) (seq 0 d) | Mac _ _ _ => [] end.

(* The word pairs that a pair (i, j) wants for itself. *)
Definition p_words (f : nat -> pword) n := map f (seq 0 n).
Definition p_targets d dv (p : nat * nat) : list (pword * pword) :=
  let (i, j) := p in
  list_prod (p_words (Pq i) d) (p_words (Pk j) d ++ p_words (Pv j) dv)
  ++ list_prod (p_words (Po i) dv) (p_words (Pk j) d)
  ++ map (fun c => (Po i c, Pv j c)) (seq 0 dv).

Definition p_apart d dv (p : nat * nat) : list (pword * pword) :=
  let (i, j) := p in
  map (fun c => (Pq i c, Pk j c)) (seq 0 d) ++ map (fun c => (Po i c, Pv j c)) (seq 0 dv).

Definition p_query_side (w : pword) : bool := match w with Pq _ _ | Po _ _ => true | _ => false end.
Definition p_row (w : pword) : nat :=
  match w with Pq i _ | Po i _ | Pk i _ | Pv i _ | Pp i _ | Px _ i => i end.
Definition p_owner (xy : pword * pword) := (p_row (fst xy), p_row (snd xy)).

Lemma in_p_words f n w : In w (p_words f n) <-> exists c, c < n /\ f c = w.
Proof.
  unfold p_words. rewrite in_map_iff. split; intros (c & H1 & H2); exists c;
    [ rewrite in_seq in H2 | rewrite in_seq ]; split; trivial; lia.
Qed.

Ltac in_p := repeat match goal with
  | H : In _ (_ ++ _) |- _ => apply in_app_iff in H; destruct H
  | H : In (_, _) (list_prod _ _) |- _ => apply in_prod_iff in H; destruct H
  | H : In _ (map _ (seq 0 _)) |- _ =>
      let E := fresh "E" in apply in_map_iff in H as (? & E & ?); injection E as <- <-
  | H : In _ (p_words _ _) |- _ =>
      let E := fresh "E" in apply in_p_words in H as (? & ? & E); first [ discriminate E | subst ]
  end.

Lemma p_words_NoDup f n : (forall x y, f x = f y -> x = y) -> NoDup (p_words f n).
Proof. intros H. apply NoDup_map; [ exact H | apply seq_NoDup ]. Qed.

Lemma p_targets_shape d dv p :
  NoDup (p_targets d dv p) /\ length (p_targets d dv p) = d * d + 2 * (d * dv) + dv.
Proof.
  destruct p as [i j]. unfold p_targets. split.
  - apply NoDup_app; [ | apply NoDup_app | ].
    + apply NoDup_list_prod; [ apply p_words_NoDup; congruence | ].
      apply NoDup_app; try (apply p_words_NoDup; congruence). intros w ? ?; in_p.
    + apply NoDup_list_prod; apply p_words_NoDup; congruence.
    + apply NoDup_map; [ congruence | apply seq_NoDup ].
    + intros [x y] H H'. in_p.
    + intros [x y] H H'. in_p.
  - rewrite !app_length, !prod_length, app_length. unfold p_words.
    rewrite !map_length, !seq_length. lia.
Qed.

Lemma p_targets_owner d dv p x y : In (x, y) (p_targets d dv p) ->
  p_query_side x = true /\ p_query_side y = false /\ p_owner (x, y) = p.
Proof. destruct p as [i j]. unfold p_targets. intros H. in_p; cbn; auto. Qed.

Lemma p_apart_shape d dv p : NoDup (p_apart d dv p) /\ length (p_apart d dv p) = d + dv.
Proof.
  destruct p as [i j]. unfold p_apart. split.
  - apply NoDup_app; try (apply NoDup_map; [ congruence | apply seq_NoDup ]).
    intros [x y] H H'. apply in_map_iff in H as (? & E & _), H' as (? & E' & _). congruence.
  - now rewrite app_length, !map_length, !seq_length.
Qed.

Lemma p_apart_owner d dv p x y : In (x, y) (p_apart d dv p) ->
  p_query_side x = true /\ p_query_side y = false /\ p_owner (x, y) = p.
Proof. destruct p as [i j]. unfold p_apart. intros H. in_p; cbn; auto. Qed.

Theorem general_window_bound d dv vis M es :
  0 < d -> 0 < dv -> 0 < M -> NoDup vis ->
  valid M (init (products d)) es -> p_complete d dv vis (run (init _) es) ->
  let full := d * d + 2 * (d * dv) + dv in let cost := full - (d + dv) in
  length vis * full <= (M + cost - 1) * traffic es + cost * M.
Proof.
  intros Hd Hdv HM Hvis V C full cost.
  assert (HL : 0 < cost) by (unfold cost, full; nia).
  destruct (window_meeting (X := products d) M cost cost is_partial partial_of (partial_tasks d)
    HL (le_n _)) with (es := es) as (ar & rl & far & paid & P & T & G); trivial.
  - intros [] E; cbn in *; congruence.
  - intros [i j c | i j c] w; cbn; tauto.
  - intros [i j c | i j c] ct Hr t' Ht'; cbn in *; [ contradiction | ].
    apply in_map_iff in Ht' as (x & <- & Hx). apply in_seq in Hx. split; [ reflexivity | ].
    apply Hr. lia.
  - set (lost := fun p => if in_dec pword_dec (Pp (fst p) (snd p)) far then true else false).
    apply (window_count p_query_side p_owner (p_targets d dv) (p_apart d dv) lost
      full (d + dv) M cost vis paid (length far) ar rl); trivial.
    + unfold cost. lia.
    + apply p_targets_shape.
    + apply p_apart_shape.
    + intros p x y H. apply in_app_iff in H as [H | H];
        [ now apply (p_targets_owner d dv) | now apply (p_apart_owner d dv) ].
    + intros [i j] x y Hp Hxy.
      assert (A : forall c, c < dv ->
        met_apart (X := products d) (partial_tasks d) paid (Acc i j c) (Po i c)).
      { intros c Hc. destruct (G (Po i c) (Acc i j c) eq_refl (C i j c Hp Hc)) as [[_ H] | H];
          [ exact H | now apply met_by_task_apart ]. }
      unfold lost in Hxy. cbn [fst snd] in Hxy.
      destruct (in_dec pword_dec (Pp i j) far) as [Hf | Hf].
      * (* given up *)
        apply in_app_iff in Hxy as [H | H]; apply in_map_iff in H as (c & E & Hc);
          injection E as <- <-; apply in_seq in Hc.
        -- destruct (A 0 Hdv) as [_ H]. apply (H (Mac i j c)); cbn; auto; try congruence.
           apply in_map, in_seq. lia.
        -- destruct (A c) as [H _]; [ lia | ]. apply H; cbn; auto; congruence.
      * (* formed and used in one window *)
        assert (K : forall c, c < dv ->
          (exists c', c' < d /\ x = Pq i c') \/ x = Po i c ->
          (exists c', c' < d /\ y = Pk j c') \/ y = Pv j c -> met paid x y).
        { intros c Hc Hx Hy. destruct (G (Po i c) (Acc i j c) eq_refl (C i j c Hp Hc)) as [[H _] | H];
            [ contradiction | ].
          assert (S : forall c' z, c' < d -> z = Pq i c' \/ z = Pk j c' ->
              In z (flat_map (needs (m := products d)) (Acc i j c :: partial_tasks d (Acc i j c)))).
          { intros c' z Hc' Hz. apply in_flat_map. exists (Mac i j c'). split.
            - right. cbn. apply in_map, in_seq. lia.
            - cbn. intuition auto. }
          apply H.
          - destruct Hx as [(c' & Hc' & E) | ->]; [ apply (S c'); auto | cbn; auto ].
          - destruct Hy as [(c' & Hc' & E) | ->]; [ apply (S c'); auto | cbn; auto ].
          - intros ->. destruct Hx as [(? & _ & Ex) | Ex], Hy as [(? & _ & Ey) | Ey]; congruence.
          - destruct Hx as [(? & _ & ->) | ->]; auto.
          - destruct Hy as [(? & _ & ->) | ->]; auto. }
        unfold p_targets in Hxy. apply in_app_iff in Hxy as [Hxy | Hxy].
        -- apply in_prod_iff in Hxy as [Hx Hy]. apply in_p_words in Hx as (c1 & H1 & <-).
           apply in_app_iff in Hy as [Hy | Hy]; apply in_p_words in Hy as (c2 & H2 & <-).
           ++ apply (K 0); eauto.
           ++ apply (K c2); eauto.
        -- apply in_app_iff in Hxy as [Hxy | Hxy].
           ++ apply in_prod_iff in Hxy as [Hx Hy]. apply in_p_words in Hx as (c1 & H1 & <-).
              apply in_p_words in Hy as (c2 & H2 & <-). apply (K c1); eauto.
           ++ apply in_map_iff in Hxy as (c & E & Hc). injection E as <- <-.
              apply in_seq in Hc. apply (K c); auto. lia.
    + (* each pair given up has its partial score in far *)
      rewrite <- (map_length (fun p => Pp (fst p) (snd p)) (filter lost vis)).
      apply NoDup_incl_length.
      * apply NoDup_map; [ intros [] []; cbn; congruence | now apply NoDup_filter ].
      * intros w Hw. apply in_map_iff in Hw as (p & <- & Hp). apply filter_In in Hp as [_ Hp].
        unfold lost in Hp.
        destruct (in_dec pword_dec (Pp (fst p) (snd p)) far); [ assumption | discriminate ].
Qed.

(* dv = d, no mask. *)
Corollary general_bound_large_memory d nq nk M es :
  0 < d -> 0 < M ->
  valid M (init (products d)) es ->
  p_complete d d (all_pairs nq nk) (run (init _) es) ->
  nq * nk * (3 * (d * d) + d) <= (M + (3 * (d * d) - d) - 1) * traffic es + (3 * (d * d) - d) * M.
Proof.
  intros Hd HM V C.
  pose proof (general_window_bound d d _ M es Hd Hd HM (all_pairs_NoDup nq nk) V C) as H.
  cbn zeta in H. rewrite all_pairs_length in H.
  replace (d * d + 2 * (d * d) + d) with (3 * (d * d) + d) in H by lia.
  replace (3 * (d * d) + d - (d + d)) with (3 * (d * d) - d) in H by lia. exact H.
Qed.
