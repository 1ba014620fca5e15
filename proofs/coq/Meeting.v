(* The meeting lemma, from which the fused and the unfused bounds follow.

   Two words meet when both are in fast memory.  They first meet when the later
   of the two comes in, and a word that comes in meets at most M - 1 others.  So
   the meetings that count are at most (M - 1) traffic: a load pays for its own;
   a word made anew pays with its first store, and if it is dropped unsaved then
   what it had absorbed is lost and its meetings are not needed.

     meeting: for every valid execution there is a list L of pairs of words, of
     length at most (M - 1) traffic, that holds every pair of inputs needed by a
     task that was done, and every pair of an input and w needed by a task saved
     in w.

   count_targets turns it into a bound: different tasks need different pairs.
   Source: derived here; the first-meeting argument is in the spirit of Hong and
   Kung 1981. *)
From Coq Require Import Arith Lia List Permutation.
From iosim Require Import Lists Machine.
Import ListNotations.

Definition met {A} (L : list (A * A)) (x y : A) := In (x, y) L \/ In (y, x) L.

Lemma met_app {A} (L L' : list (A * A)) x y : met (L ++ L') x y <-> met L x y \/ met L' x y.
Proof. unfold met. rewrite !in_app_iff. tauto. Qed.

Section Meeting.
Context {X : model}.
Notation word := (word X).
Notation task := (task X).

(* The pairs of w with the words of ws. *)
Definition meets (w : word) (ws : list word) : list (word * word) := map (pair w) ws.

Lemma meets_met w ws y : In y ws -> met (meets w ws) w y.
Proof. intros H. left. now apply in_map. Qed.

(* The pairs of task t that count for its copy in w. *)
Definition good (L : list (word * word)) (t : task) (w : word) :=
  forall x y, In x (needs t) -> In y (needs t) -> x <> y ->
  (input x = true \/ x = w) -> (input y = true \/ y = w) -> met L x y.

Definition good_inputs (L : list (word * word)) (t : task) :=
  forall x y, In x (needs t) -> In y (needs t) -> x <> y ->
  input x = true -> input y = true -> met L x y.

(* L is paid for; pend w waits for the first store of w. *)
Record paid (M : nat) (s : state X) (L : list (word * word)) (pend : word -> list (word * word))
  : Prop := {
  paid_fast : forall x y, In x (fast s) -> In y (fast s) -> x <> y ->
    met L x y \/ met (pend x) x y \/ met (pend y) x y;
  paid_length : forall w, length (pend w) <= M - 1;
  paid_input : forall w, input w = true -> pend w = [];
  paid_content : forall w t, In t (content s w) -> good (L ++ pend w) t w;
  paid_saved : forall w t, In t (saved s w) -> good L t w
}.

Lemma good_incl L L' t w : (forall x y, met L x y -> met L' x y) -> good L t w -> good L' t w.
Proof. unfold good. auto 10. Qed.

Lemma paid_step M s L pend e :
  paid M s L pend -> allowed s e -> length (fast (step s e)) <= M ->
  exists L' pend', paid M (step s e) L' pend' /\ incl L L' /\
    length L' <= length L + (M - 1) * (cost_load e + cost_store e) /\
    (forall t, e = Do t -> good_inputs L' t).
Proof.
  intros [Pf Pl Pi Pc Ps] He HM. destruct s as [f c m]; cbn in *.
  destruct e as [w | w | w | w | w | t]; cbn in *.
  - (* Load *)
    unfold enter in *. destruct (in_dec (word_dec X) w f) as [Hw | Hw].
    + exists L, pend. split; [ split; cbn; trivial | ].
      * intros x t Hx. unfold upd in Hx. destruct (word_dec X w x) as [<- | ]; [ | auto ].
        apply in_app_iff in Hx as [Hx | Hx]; [ auto | ].
        apply good_incl with L; [ | auto ]. intros; apply met_app; auto.
      * split; [ apply incl_refl | split; [ lia | discriminate ] ].
    + exists (L ++ meets w f), pend. split; [ split; cbn; trivial | ].
      * intros x y [<- | Hx] [<- | Hy] Hxy; [ congruence | | | ].
        -- left. apply met_app. right. now apply meets_met.
        -- left. apply met_app. right. destruct (meets_met w f x Hx); [ now right | now left ].
        -- rewrite met_app. specialize (Pf x y Hx Hy Hxy). tauto.
      * intros x t Hx.
        assert (G : good (L ++ pend x) t x).
        { unfold upd in Hx. destruct (word_dec X w x) as [<- | ]; [ | auto ].
          apply in_app_iff in Hx as [Hx | Hx]; [ auto | ].
          apply good_incl with L; [ | auto ]. intros; apply met_app; auto. }
        revert G. apply good_incl. intros ? ?. rewrite !met_app. tauto.
      * intros x t Hx. apply good_incl with L; [ | auto ]. intros; apply met_app; auto.
      * split; [ apply incl_appl, incl_refl | split; [ | discriminate ] ].
        rewrite app_length. unfold meets. rewrite map_length. cbn in HM. lia.
  - (* New *)
    destruct He as [Hw Hi]. exists L, (upd pend w (meets w f)).
    split; [ split; cbn; trivial | ].
    + intros x y [<- | Hx] [<- | Hy] Hxy; [ congruence | | | ].
      * right; left. rewrite upd_same. now apply meets_met.
      * right; right. rewrite upd_same. destruct (meets_met w f x Hx); [ now right | now left ].
      * rewrite !upd_other by congruence. auto.
    + intros x. unfold upd. destruct (word_dec X w x); [ | auto ].
      unfold meets. rewrite map_length. lia.
    + intros x Hx. rewrite upd_other by congruence. auto.
    + intros x t. unfold upd. destruct (word_dec X w x); [ contradiction | auto ].
    + split; [ apply incl_refl | split; [ lia | discriminate ] ].
  - (* Store *)
    exists (L ++ pend w), (upd pend w []).
    assert (K : forall x y, met L x y \/ met (pend x) x y \/ met (pend y) x y ->
              met (L ++ pend w) x y \/ met (upd pend w [] x) x y \/ met (upd pend w [] y) x y).
    { intros x y. rewrite met_app. unfold upd.
      destruct (word_dec X w x), (word_dec X w y); subst; tauto. }
    split; [ split; cbn; auto | ].
    + intros x. unfold upd. destruct (word_dec X w x); cbn; [ lia | auto ].
    + intros x Hx. unfold upd. destruct (word_dec X w x); auto.
    + intros x t Hx. specialize (Pc x t Hx). revert Pc. apply good_incl. intros a b.
      unfold upd. destruct (word_dec X w x); subst; rewrite !met_app; tauto.
    + intros x t. unfold upd. destruct (word_dec X w x) as [<- | ]; [ auto | ].
      intros Hx. apply good_incl with L; [ | auto ]. intros; apply met_app; auto.
    + split; [ apply incl_appl, incl_refl | split; [ | discriminate ] ].
      rewrite app_length. specialize (Pl w). lia.
  - (* Add *)
    exists (L ++ pend w), (upd pend w []).
    assert (K : forall x y, met L x y \/ met (pend x) x y \/ met (pend y) x y ->
              met (L ++ pend w) x y \/ met (upd pend w [] x) x y \/ met (upd pend w [] y) x y).
    { intros x y. rewrite met_app. unfold upd.
      destruct (word_dec X w x), (word_dec X w y); subst; tauto. }
    split; [ split; cbn; auto | ].
    + intros x. unfold upd. destruct (word_dec X w x); cbn; [ lia | auto ].
    + intros x Hx. unfold upd. destruct (word_dec X w x); auto.
    + intros x t Hx. specialize (Pc x t Hx). revert Pc. apply good_incl. intros a b.
      unfold upd. destruct (word_dec X w x); subst; rewrite !met_app; tauto.
    + assert (K' : forall x t, In t (m x) -> good (L ++ pend w) t x).
      { intros x t Hx. apply good_incl with L; [ | auto ]. intros; apply met_app; auto. }
      intros x t. unfold upd. destruct (word_dec X w x) as [<- | ]; [ | auto ].
      intros Hx. apply in_app_iff in Hx as [Hx | Hx]; auto.
    + split; [ apply incl_appl, incl_refl | split; [ | discriminate ] ].
      rewrite app_length. specialize (Pl w). lia.
  - (* Drop *)
    exists L, pend. split; [ split; cbn; trivial | ].
    + intros x y Hx Hy. apply in_remove in Hx as [Hx _]. apply in_remove in Hy as [Hy _]. auto.
    + intros x t. unfold upd. destruct (word_dec X w x); [ contradiction | auto ].
    + split; [ apply incl_refl | split; [ lia | discriminate ] ].
  - (* Do *)
    destruct He as [Hn _]. exists L, pend.
    assert (G : forall w, good (L ++ pend w) t w).
    { intros w x y Hx Hy Hxy Ix Iy. apply met_app.
      destruct (Pf x y (Hn _ Hx) (Hn _ Hy) Hxy) as [H | [H | H]]; [ auto | | ].
      - destruct Ix as [Ix | <-]; [ | auto ]. rewrite (Pi _ Ix) in H. now destruct H.
      - destruct Iy as [Iy | <-]; [ | auto ]. rewrite (Pi _ Iy) in H. now destruct H. }
    split; [ split; cbn; trivial | ].
    + intros x t'. unfold absorb. destruct (in_dec (word_dec X) x (outs t)); [ | auto ].
      intros [<- | Hx]; auto.
    + split; [ apply incl_refl | split; [ lia | ] ].
      intros t' E. injection E as <-. intros x y Hx Hy Hxy Ix Iy.
      destruct (Pf x y (Hn _ Hx) (Hn _ Hy) Hxy) as [H | [H | H]]; [ auto | | ];
        rewrite Pi in H by assumption; now destruct H.
Qed.

Lemma paid_run M es : forall s L pend, paid M s L pend -> valid M s es ->
  exists L' pend', paid M (run s es) L' pend' /\ incl L L' /\
    length L' <= length L + (M - 1) * traffic es /\
    (forall t, In (Do t) es -> good_inputs L' t).
Proof.
  induction es as [| e es IH]; intros s L pend P V.
  - exists L, pend. cbn. repeat split; try apply P; [ apply incl_refl | lia | contradiction ].
  - destruct V as (He & HM & V).
    destruct (paid_step M s L pend e P He HM) as (L1 & p1 & P1 & I1 & N1 & G1).
    destruct (IH _ _ _ P1 V) as (L2 & p2 & P2 & I2 & N2 & G2).
    exists L2, p2. split; [ exact P2 | split; [ | split ] ].
    + now apply incl_tran with L1.
    + cbn. rewrite Nat.mul_add_distr_l. unfold traffic in *. lia.
    + intros t [-> | Ht]; [ | auto ].
      intros x y Hx Hy Hxy Ix Iy. destruct (G1 t eq_refl x y Hx Hy Hxy Ix Iy);
        [ left | right ]; auto.
Qed.

Theorem meeting M es : valid M (init X) es ->
  exists L, length L <= (M - 1) * traffic es /\
    (forall t, In (Do t) es -> good_inputs L t) /\
    (forall w t, In t (saved (run (init X) es) w) -> good L t w).
Proof.
  intros V.
  destruct (paid_run M es (init X) [] (fun _ => [])) as (L & p & P & _ & N & G); trivial.
  - split; cbn; try contradiction; auto. intros; lia.
  - exists L. split; [ exact N | split; [ exact G | apply P ] ].
Qed.
End Meeting.

(* Distinct targets: if every p of a duplicate-free list asks for pairs (x, y) of its
   own, x on the left side and y on the right, and all have met, then L is as long as
   all these together. *)
Lemma count_all {A P : Type} (left_side : A -> bool) (owner : A * A -> P)
    (targets : P -> list (A * A)) (vis : list P) (L : list (A * A)) :
  NoDup vis ->
  (forall p, NoDup (targets p)) ->
  (forall p x y, In (x, y) (targets p) ->
     left_side x = true /\ left_side y = false /\ owner (x, y) = p) ->
  (forall p x y, In p vis -> In (x, y) (targets p) -> met L x y) ->
  length (flat_map targets vis) <= length L.
Proof.
  intros Hv Ht Ho Hm.
  set (turn := fun xy : A * A => if left_side (fst xy) then xy else (snd xy, fst xy)).
  rewrite <- (map_length turn L).
  apply NoDup_incl_length.
  - apply (NoDup_flat_map owner); [ exact Hv | intros; apply Ht | ].
    intros p [x y] _ H. now apply Ho.
  - intros [x y] Hz. apply in_flat_map in Hz as (p & Hp & Hz).
    destruct (Ho _ _ _ Hz) as (Hx & Hy & _).
    apply in_map_iff. destruct (Hm _ _ _ Hp Hz) as [H | H].
    + exists (x, y). unfold turn. cbn. now rewrite Hx.
    + exists (y, x). unfold turn. cbn. now rewrite Hy.
Qed.

(* The same with n pairs each. *)
Lemma count_targets {A P : Type} (left_side : A -> bool) (owner : A * A -> P)
    (targets : P -> list (A * A)) (n : nat) (vis : list P) (L : list (A * A)) :
  NoDup vis ->
  (forall p, NoDup (targets p) /\ length (targets p) = n) ->
  (forall p x y, In (x, y) (targets p) ->
     left_side x = true /\ left_side y = false /\ owner (x, y) = p) ->
  (forall p x y, In p vis -> In (x, y) (targets p) -> met L x y) ->
  length vis * n <= length L.
Proof.
  intros Hv Ht Ho Hm. rewrite <- (flat_map_length targets n vis) by (intros; apply Ht).
  apply (count_all left_side owner); trivial. intros; apply Ht.
Qed.
